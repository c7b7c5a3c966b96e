package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pgmill/pgmill/platform"
)

// Max is how many bytes a blob may have.
const Max = platform.MaxBlob

// Retention is how long a blob is kept.
type Retention string

// The retentions: a day, seven, thirty.
const (
	Short    Retention = "short"
	Standard Retention = "standard"
	Audit    Retention = "audit"
)

// New is what is put away.
type New struct {
	Content     []byte
	ContentType string    // "" means application/octet-stream
	Scope       string    // install, provider or org:<id>; "" means install
	Retention   Retention // "" means Standard
	TraceID     string
}

// Info is what is known of a blob.
type Info struct {
	Pointer     string
	Scope       string
	ContentType string
	Size        int64
	SHA256      [32]byte
	CreatedAt   time.Time
	ExpiresAt   time.Time // zero: it goes with its job
}

// Errors of this package, to be used with errors.Is.
var (
	ErrNotFound = errors.New("there is no such blob (any more), or it is another scope's")
	ErrBad      = errors.New("malformed blob")
	ErrSize     = errors.New("blob too large")
	ErrDamaged  = errors.New("the blob is not what was put")
)

// Put stores a blob in the caller's transaction, it exists if and when that commits, and
// answers its pointer.
func Put(ctx context.Context, tx platform.Tx, b New) (pointer string, err error) {
	if len(b.Content) > Max { // not worth sending
		return "", fmt.Errorf("put a blob of %d bytes: %w; at most %d", len(b.Content), ErrSize, Max)
	}
	options := map[string]string{}
	for name, v := range map[string]string{"content_type": b.ContentType, "scope": b.Scope, "retention": string(b.Retention), "trace_id": b.TraceID} {
		if v != "" {
			options[name] = v
		}
	}
	raw, err := json.Marshal(options)
	if err != nil {
		return "", err
	}
	if b.Content == nil {
		b.Content = []byte{}
	}
	if err := tx.QueryRow(ctx, `select mill.put_blob($1, $2::text::jsonb)`, b.Content, string(raw)).Scan(&pointer); err != nil {
		return "", fmt.Errorf("put a blob: %w", putError(err))
	}
	return pointer, nil
}

func putError(err error) error {
	var pe interface{ SQLState() string }
	if !errors.As(err, &pe) {
		return err
	}
	switch pe.SQLState() {
	case "MI001":
		return fmt.Errorf("%w: %w", ErrBad, err)
	case "MI002":
		return fmt.Errorf("%w: %w", ErrSize, err)
	}
	return err
}

// Stat answers what is known of a blob.
func Stat(ctx context.Context, tx platform.Tx, pointer string) (Info, error) {
	i := Info{Pointer: pointer}
	var scope, contentType *string
	var size *int64
	var sum []byte
	var created, expires *time.Time
	err := tx.QueryRow(ctx, `select scope, content_type, size, sha256, created_at, expires_at from mill.blob($1)`, pointer).
		Scan(&scope, &contentType, &size, &sum, &created, &expires)
	switch {
	case err != nil:
		return i, fmt.Errorf("look for a blob: %w", err)
	case scope == nil:
		return i, ErrNotFound
	case expires != nil:
		i.ExpiresAt = *expires
	}
	i.Scope, i.ContentType, i.Size, i.CreatedAt = *scope, *contentType, *size, *created
	copy(i.SHA256[:], sum)
	return i, nil
}
