package blob_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/blob"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// C155: what is put comes back, whatever its size, and not before it is committed.
func TestPutAndOpen(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, n := range []int{0, 1, 512<<10 - 1, 512 << 10, 512<<10 + 1, 3 << 20} {
		content := make([]byte, n)
		for i := range content {
			content[i] = byte(rand.Uint32())
		}
		var pointer string
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			pointer, err = blob.Put(t.Context(), tx, blob.New{Content: content, ContentType: "image/png", Scope: "org:acme", Retention: blob.Short, TraceID: "t1"})
			if err == nil {
				if _, other := blob.Open(t.Context(), pool, pointer); !errors.Is(other, blob.ErrNotFound) {
					t.Errorf("somebody else sees it before the commit: %v", other)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := blob.Open(t.Context(), pool, pointer)
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(io.MultiReader(r), content); n < 1000 && err != nil {
			t.Error(err)
		}
		r, _ = blob.Open(t.Context(), pool, pointer)
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("read %d of %d bytes, %v", len(got), n, err)
		}
		if day := time.Until(r.ExpiresAt); r.ContentType != "image/png" || r.Scope != "org:acme" || r.Size != int64(n) || day < 23*time.Hour || day > 25*time.Hour {
			t.Errorf("it is %+v", r.Info)
		}
	}
}

// One that is not what was put, or that goes meanwhile, does not end well.
func TestDamageIsSeen(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	pointer, err := blob.Put(t.Context(), pool, blob.New{Content: bytes.Repeat([]byte{1}, 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, pool, `update pgmill.blob set bytes = overlay(bytes placing '\x02' from 7)`)
	r, err := blob.Open(t.Context(), pool, pointer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, blob.ErrDamaged) {
		t.Errorf("a damaged one is read: %v", err)
	}
	r, _ = blob.Open(t.Context(), pool, pointer)
	_, _ = r.Read(make([]byte, 512<<10))
	pgtest.Exec(t, pool, `delete from pgmill.blob`)
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("one that is gone is read: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, tt := range []struct {
		name string
		blob blob.New
		want error
	}{
		{"larger than 32 MiB", blob.New{Content: make([]byte, blob.Max+1)}, blob.ErrSize},
		{"a scope that is none", blob.New{Scope: "acme"}, blob.ErrBad},
		{"a retention that is none", blob.New{Retention: "long"}, blob.ErrBad},
		{"a content type that is none", blob.New{ContentType: "text/plain\r\nX: y"}, blob.ErrBad},
		{"a trace that is none", blob.New{TraceID: "a b"}, blob.ErrBad},
	} {
		if _, err := blob.Put(t.Context(), pool, tt.blob); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	var code interface{ SQLState() string }
	if err := pool.QueryRow(t.Context(), `select mill.put_blob(convert_to(repeat('x', $1), 'UTF8'))`, blob.Max+1).Scan(new(string)); !errors.As(err, &code) || code.SQLState() != "MI002" {
		t.Errorf("SQL takes more than 32 MiB: %v", err)
	}
	for _, pointer := range []string{"", "x", "ptr://art/", "ptr://art/" + strings.Repeat("0", 36), "ptr://cfg/" + strings.Repeat("0", 36)} {
		if _, err := blob.Open(t.Context(), pool, pointer); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("open %q: %v", pointer, err)
		}
	}
}

// C152: a role of the contract reads by pointer only, the API what is of its scope, and
// an emitter nothing.
func TestWhoMayRead(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emitter, as := pgtest.Role(t, dsn, "mill_emitter")
	pointer, err := blob.Put(t.Context(), platformtest.Pool(t, as), blob.New{Content: []byte("x"), Scope: "org:acme"})
	if err != nil {
		t.Fatalf("%s puts: %v", emitter, err)
	}
	for _, q := range []string{`select bytes from pgmill.blob`, `select mill.read_blob('` + pointer + `')`} {
		if _, err := platformtest.Pool(t, as).Exec(t.Context(), q); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s as an emitter = %v, want 42501", q, err)
		}
	}
	for scope, want := range map[string]error{"org:acme": nil, "*": nil, "org:other": blob.ErrNotFound, "": blob.ErrNotFound} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select set_config('role', 'pgmill_api', true), set_config('pgmill.scope', $1, true)`, scope); err != nil {
				return err
			}
			r, err := blob.Open(t.Context(), tx, pointer)
			if err == nil {
				_, err = io.ReadAll(r)
			}
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("the API in scope %q: %v, want %v", scope, err, want)
		}
	}
}
