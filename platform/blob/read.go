package blob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"github.com/pgmill/pgmill/platform"
)

// piece is how much is read at once.
const piece = 512 << 10

// Reader reads a blob from its beginning, a piece a statement, and holds no more. The
// last Read fails with ErrDamaged if it was not what was put.
type Reader struct {
	Info

	ctx  context.Context
	tx   platform.Tx
	rest []byte // of the piece at hand
	at   int64  // where the next piece begins
	sum  hash.Hash
}

// Open answers a reader that is good for as long as ctx and tx are. A pool may stand for tx:
// a blob does not change.
func Open(ctx context.Context, tx platform.Tx, pointer string) (*Reader, error) {
	i, err := Stat(ctx, tx, pointer)
	if err != nil {
		return nil, err
	}
	return &Reader{Info: i, ctx: ctx, tx: tx, sum: sha256.New()}, nil
}

// Read is io.Reader's.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.at < r.Size {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	if len(r.rest) == 0 {
		return 0, r.end()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *Reader) next() error {
	err := r.tx.QueryRow(r.ctx, `select mill.read_blob($1, $2, $3)`, r.Pointer, r.at, piece).Scan(&r.rest)
	switch {
	case err != nil:
		return fmt.Errorf("read a blob at %d: %w", r.at, err)
	case len(r.rest) == 0:
		return ErrNotFound // it was deleted meanwhile
	}
	r.at += int64(len(r.rest))
	r.sum.Write(r.rest)
	return nil
}

func (r *Reader) end() error {
	if [32]byte(r.sum.Sum(nil)) != r.SHA256 {
		return ErrDamaged
	}
	return io.EOF
}
