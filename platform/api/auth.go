package api

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// caller is who a request is from.
type caller struct{ Name, Scope, Role string }

// everyone is the caller where the API is open.
var everyone = caller{Name: "open", Scope: "*", Role: "admin"}

func (w caller) may(r right) bool { return slices.Contains(roles[w.Role], r) }

func callerOf(c echo.Context) caller {
	who, _ := c.Get("caller").(caller)
	return who
}

// authenticate finds out who calls; without an answer to that nothing is answered.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		switch {
		case len(s.Keys) > 0:
			k, ok := match(s.Keys, secretOf(c.Request()))
			if !ok {
				c.Response().Header().Set("WWW-Authenticate", "Bearer")
				return refuse(http.StatusUnauthorized, "unauthorized", "unauthorized")
			}
			c.Set("caller", caller{"key:" + k.Name, k.Scope, k.Role})
		case s.Open:
			c.Set("caller", everyone)
		default:
			return refuse(http.StatusServiceUnavailable, "no_api_keys", "this host has no API keys, so its API is closed: set PGMILL_API_KEYS or PGMILL_API_KEYS_FILE")
		}
		return next(c)
	}
}

func secretOf(r *http.Request) string {
	if key := r.Header.Get("X-API-Key"); key != "" {
		return key
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// origin keeps web pages of others out: a browser says where a page is from. An open
// API answers to loopback names only, so that no page reaches it by a name of its own.
func (s *Server) origin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, h := c.Request(), c.Response().Header()
		from := r.Header.Get("Origin")
		if from != "" && !allowed(from, r.Host) || len(s.Keys) == 0 && s.Open && !IsLoopback(r.Host) {
			return refuse(http.StatusForbidden, "origin_not_allowed", "origin not allowed")
		}
		if from != "" {
			h.Set("Access-Control-Allow-Origin", from)
			h.Add("Vary", "Origin")
		}
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Content-Type, Authorization, X-API-Key, X-Principal-Id, X-Principal-Role, Idempotency-Key, X-Idempotency-Key")
		if r.Method == http.MethodOptions {
			return c.NoContent(http.StatusNoContent)
		}
		return next(c)
	}
}

func allowed(from, host string) bool {
	u, err := url.Parse(from)
	return err == nil && u.Host != "" && (IsLoopback(u.Host) || u.Host == host)
}

// IsLoopback reports whether a host, with or without a port, is this machine.
func IsLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
