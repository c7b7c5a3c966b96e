// Package connectors owns what is known of connectors: the connectors, their instances,
// each report on an instance's health, and how healthy a connector is as a whole. It is
// a module (schema connectors): others call its seams, Add, RecordHealth and ReadHealth
// here and the functions of the same names in SQL, and read its views instances,
// connector_health and preparations; nobody else writes its tables. It imports platform
// and pgx only.
//
// A report that changes an instance's health is an event, connector.health.changed,
// which points to the report and holds nothing of it. The subscription
// connectors.health counts a connector's instances on each, and is idempotent: it
// counts what is there, so doing it again changes nothing.
//
// Sources that are selected for AI (SelectSource) are prepared in bulk (PrepareForAI): one
// operation, one job of job.connectors.prepare for each source. A job hands its source over: it
// notes that and emits connector.source.handed_off with pointers, no more; what
// extraction, indexing and AI make of it is theirs. The subscription
// connectors.prepare_status counts what was handed over, and ReadPreparation says how far it is.
//
// There is no route of HTTP for it yet: a bulk request's 202 with a Location and its
// asyncOperation (N58) come with the control plane, which has PrepareForAI and ReadPreparation
// for both.
package connectors
