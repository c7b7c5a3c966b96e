package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

const maxPage = 500

// filter is what a list's statement takes; only what was asked for is in it.
type filter map[string]any

// text takes a query parameter over.
func (f filter) text(c echo.Context, param, name string) {
	if v := c.QueryParam(param); v != "" {
		f[name] = v
	}
}

// time takes a time over: seconds, or milli-, micro- or nanoseconds by its magnitude.
func (f filter) time(param, v, name string) error {
	if v == "" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return badField(param, "a time as a number: seconds, milli-, micro- or nanoseconds since 1970")
	}
	switch {
	case n < 1e12:
		n *= 1e6
	case n < 1e15:
		n *= 1e3
	case n >= 1e18:
		n /= 1e3
	}
	f[name] = n
	return nil
}

// tenant bounds the list to one scope, which must be the caller's.
func (f filter) tenant(who caller, tenant string) error {
	if tenant == "" {
		return nil
	}
	scope, err := who.scopeFor(tenant)
	f["scope"] = scope
	return err
}

// lastMicros is the end of the year 9999: what Postgres takes as a time.
const lastMicros = 253402300799_999_999

// cursor takes up where a page ended.
func (f filter) cursor(c echo.Context) error {
	v := c.QueryParam("cursor")
	if v == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(v)
	at, id, ok := strings.Cut(string(b), " ")
	n, numberErr := strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || numberErr != nil || n < 0 || n > lastMicros || len(id) > 200 {
		return badField("cursor", "a next_cursor of an earlier page")
	}
	f["at"], f["id"] = n, id
	return nil
}

func (f filter) json() []byte {
	b, _ := json.Marshal(f)
	return b
}

func cursorAfter(at int64, id string) *string {
	s := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", at, id))
	return &s
}

// limit is how many items a page has; what is no number counts as not given.
func limit(c echo.Context, preset int) int {
	n, err := strconv.Atoi(c.QueryParam("limit"))
	if err != nil || n < 1 {
		return preset
	}
	return min(n, maxPage)
}

// scopeFor is the scope that a tenant's name stands for: default is install, "" the
// caller's own. Another one's is denied.
func (w caller) scopeFor(tenant string) (string, error) {
	var scope string
	switch {
	case tenant == "" && w.Scope != "*":
		return w.Scope, nil
	case tenant == "", tenant == "default", tenant == "install":
		scope = "install"
	case tenant == "provider", strings.HasPrefix(tenant, "org:"):
		scope = tenant
	default:
		scope = "org:" + tenant
	}
	if w.Scope != "*" && w.Scope != scope {
		return "", refuse(http.StatusForbidden, "denied", "tenant access denied")
	}
	return scope, nil
}

// maxList is how many items a list without pages has.
const maxList = 1000

// cut is all that such a list shows; X-Truncated says that there is more.
func cut[T any](c echo.Context, all []T) []T {
	if len(all) > maxList {
		c.Response().Header().Set("X-Truncated", "true")
		all = all[:maxList]
	}
	return all
}

// decode makes items of what the database answered.
func decode[T any](records [][]byte) ([]T, error) {
	items := make([]T, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r, &items[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
