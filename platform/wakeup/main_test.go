package wakeup

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/pgmill/pgmill/platform/pg.(*Private).watch"))
}

const patience = 20 * time.Second
