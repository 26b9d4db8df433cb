"""The reference application: once a month every customer with purchases gets one statement.

billing.close-month -> billing.close-page -> billing.write-statement -> billing.render-statement
    -> notifications.mail-statement and accounting.post-statement
"""
