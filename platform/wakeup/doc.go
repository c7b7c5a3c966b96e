// Package wakeup says "there may be work", never what. It owns no table and imports
// no package of the module.
//
// Emitters ring the bell at commit (sql/functions/020_emit.sql) unless somebody is
// awake. A woken host looks again after 1, 2, 4 … ms up to the poll. When bells come
// often (40 in a second) it holds the emitters' lock itself for 20 ms at a time and
// looks meanwhile, so that a busy database hears few notifications and no emitter
// waits for another's commit; other hosts hear of it 25 times a second. Fewer bells
// than that cost nothing and wake at once.
//
// Whether LISTEN is heard is measured, not configured: a nonce is sent to oneself
// at the start and every 30 s. While it does not come back the host polls ten times
// a second. The poll alone is enough for everything.
package wakeup
