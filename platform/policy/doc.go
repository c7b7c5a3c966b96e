// Package policy holds decisions without I/O; for now, what may be shown: redaction
// of text that could carry a credential, a URL or a payload (N71, N84), and which known
// word a mistyped one is near to. It owns no
// table and imports no other package of the module.
package policy
