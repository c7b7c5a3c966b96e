package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

const (
	maxBody  = 2 << 20
	maxDepth = 500
)

// hurry gives a body its time, read or not: without a bound, who sends a byte now and then
// holds a connection for ever. The server lifts the bound itself at the body's end.
func (s *Server) hurry(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().ContentLength != 0 {
			_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(cmp.Or(s.BodyTimeout, 15*time.Second)))
		}
		return next(c)
	}
}

// readJSON reads a body of one JSON value, checked by scan.
func readJSON(c echo.Context) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(c.Request().Body, maxBody+1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, refuse(http.StatusRequestTimeout, "request_timeout", "the body took too long to arrive")
	} else if err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid_json", "the body ended early")
	}
	if len(body) > maxBody {
		return nil, refuse(http.StatusRequestEntityTooLarge, "too_large", "the body is larger than 2 MiB")
	}
	return body, scan(body)
}

// readBody fills into, a struct, from a body that is an object. Only exact names count; it
// answers those that it does not know.
func readBody(c echo.Context, into any) (unknown []string, err error) {
	body, err := readJSON(c)
	if err != nil {
		return nil, err
	}
	var sent map[string]json.RawMessage
	if json.Unmarshal(body, &sent) != nil || sent == nil {
		return nil, refuse(http.StatusBadRequest, "invalid_json", "invalid json: the body must be an object")
	}
	known := fields(reflect.ValueOf(into).Elem(), map[string]reflect.Value{})
	for name, raw := range sent {
		field, ok := known[name]
		switch {
		case !ok:
			unknown = append(unknown, oddities.ReplaceAllString(name[:min(len(name), 64)], "?"))
		case string(raw) == "null":
		case json.Unmarshal(raw, field.Addr().Interface()) != nil:
			return nil, refuse(http.StatusBadRequest, "invalid_json", "invalid json: "+name+" must be "+form(field.Type()))
		}
	}
	return unknown, nil
}

// readStrict is readBody for our own routes, where a name that is not known is a mistake.
func readStrict(c echo.Context, into any) error {
	unknown, err := readBody(c, into)
	if err == nil && len(unknown) > 0 {
		err = refuse(http.StatusBadRequest, "unknown_field", unknown[0]+" is no field of this request")
	}
	return err
}

var oddities = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

func fields(v reflect.Value, into map[string]reflect.Value) map[string]reflect.Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			fields(v.Field(i), into)
		} else {
			into[name] = v.Field(i)
		}
	}
	return into
}

// form says what a field takes.
func form(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return form(t.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array of texts"
	case reflect.Map:
		return "an object of texts"
	}
	return "a whole number of at most 64 bits"
}

// scan refuses what is not exactly one JSON value that everybody reads alike: names
// twice in one object, NUL, half of a surrogate pair, a number beyond a double, or
// something after the end.
func scan(body []byte) error {
	if !utf8.Valid(body) || !json.Valid(body) {
		return refuse(http.StatusBadRequest, "invalid_json", "invalid json")
	}
	mayReplace := bytes.Contains(body, []byte("\uFFFD")) || bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`))
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	type level struct {
		names map[string]bool // nil: an array
		value bool            // a name was read, its value comes
	}
	var stack []level
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return refuse(http.StatusBadRequest, "invalid_json", "invalid json")
		}
		top := len(stack) - 1
		name, isText := token.(string)
		if isText && (strings.ContainsRune(name, 0) || !mayReplace && strings.ContainsRune(name, utf8.RuneError)) {
			return refuse(http.StatusBadRequest, "invalid_json", "a text has NUL or half of a surrogate pair in it")
		}
		if top >= 0 && stack[top].names != nil && !stack[top].value && token != json.Delim('}') {
			if stack[top].names[name] {
				return refuse(http.StatusBadRequest, "duplicate_key", "a name stands twice in one object")
			}
			stack[top].names[name], stack[top].value = true, true
			continue
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				if len(stack) == maxDepth {
					return refuse(http.StatusBadRequest, "invalid_json", fmt.Sprintf("nested more than %d deep", maxDepth))
				}
				l := level{}
				if t == '{' {
					l.names = map[string]bool{}
				}
				stack = append(stack, l)
				continue
			}
			stack = stack[:top]
		case json.Number:
			if _, err := strconv.ParseFloat(t.String(), 64); err != nil {
				return refuse(http.StatusBadRequest, "invalid_number", "a number is beyond what a double can hold")
			}
		}
		if top := len(stack) - 1; top >= 0 {
			stack[top].value = false
		}
	}
}
