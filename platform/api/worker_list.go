package api

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/client"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// listWorkers is GET /api/v1/workers: the first, as an array.
func (s *Server) listWorkers(c echo.Context) error {
	page, err := s.workers(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, page.Items)
}

// pageWorkers is GET /api/v1/workers/page.
func (s *Server) pageWorkers(c echo.Context) error {
	page, err := s.workers(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, page)
}

func (s *Server) workers(c echo.Context) (page client.Page[client.Worker], err error) {
	f := filter{"id": ""}
	if err := f.cursor(c); err != nil {
		return page, err
	}
	q, err := s.db(c)
	if err != nil {
		return page, err
	}
	n := limit(c, 100)
	records, err := q.APIListWorkers(c.Request().Context(), db.APIListWorkersParams{After: f["id"].(string), Size: int32(n + 1)})
	if err != nil {
		return page, err
	}
	if len(records) > n {
		records = records[:n]
		var last struct {
			ID string `json:"id"` // with its scope; worker_id is its name there
		}
		if err := json.Unmarshal(records[n-1], &last); err != nil {
			return page, err
		}
		page.NextCursor = cursorAfter(0, last.ID)
	}
	page.Items, err = decode[client.Worker](records)
	return page, err
}
