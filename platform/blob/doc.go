// Package blob keeps bytes that are too large for an event, an input or a row: at most
// 32 MiB, put in the caller's transaction, written once, found by a pointer,
// ptr://art/<id>. What a function puts is kept for its retention; the output of a step above
// 256 KiB is put by the job's engine as ptr://res/<id> and goes with its job. It owns
// the table blob (sql/functions/125_blob.sql), imports platform only, and speaks to
// mill.put_blob, mill.blob and mill.read_blob: whoever has no Go calls those.
package blob
