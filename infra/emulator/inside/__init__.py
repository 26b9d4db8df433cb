"""What runs inside MiniStack's own process.

Stock MiniStack 1.4.21 differs from AWS in a few places where the difference would break a promise of ours or hide a
mistake. Each module here closes one of them, in the process that `server` starts; docs/local-versus-aws.md lists them
with the gaps that stay. They reach into MiniStack's private functions, so the version is pinned and `server` refuses
another one.
"""
