package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/blob"
	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// output is GET /api/v1/jobs/{id}/output: what a job that succeeded answered, whatever its
// size; null while there is nothing.
func (s *Server) output(c echo.Context) error {
	as, err := s.scoped(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	record, err := db.New(as).APIGetJob(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	var d client.JobDetail
	if err := json.Unmarshal(record, &d); err != nil {
		return err
	}
	switch {
	case d.ID == "":
		return notFound()
	case d.OutputPtr == "":
		return c.JSONBlob(http.StatusOK, []byte(cmp.Or(string(d.Output), "null")))
	}
	r, err := blob.Open(ctx, as, d.OutputPtr)
	if errors.Is(err, blob.ErrNotFound) {
		return notFound() // both went meanwhile
	} else if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, r.ContentType)
	h.Set(echo.HeaderContentLength, strconv.FormatInt(r.Size, 10))
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(c.Response(), r); err != nil {
		panic(http.ErrAbortHandler) // the answer has begun: only its breaking off says so
	}
	return nil
}
