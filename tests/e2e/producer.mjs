// A producer in JavaScript: the documented envelope, sent with AWS SDK v3.
// node producer.mjs QUEUE_URL CUSTOMER_ID PERIOD   (endpoint and credentials come from the environment)
import { SQSClient, SendMessageCommand } from "@aws-sdk/client-sqs";

const [queueUrl, customerId, period] = process.argv.slice(2);
const envelope = {
  job: "billing.write-statement",
  payload: { customer_id: customerId, period },
};
const sent = await new SQSClient({}).send(
  new SendMessageCommand({ QueueUrl: queueUrl, MessageBody: JSON.stringify(envelope) }),
);
console.log(sent.MessageId);
