// Package posture owns the compliance posture that follows from what other modules
// tell: here, one signal for each change of a connector instance's health. It is a
// module (schema posture) and keeps no more than which instance, how it stands and
// when: the report itself, its reason and its words stay with package connectors, which
// it asks by the event's pointer. Other modules call its seam, ReadSignals here and
// read_signals in SQL, for one organization; people read the views signals and
// connector_instances; nobody else has its table. It imports platform, pgx and package
// connectors for its event type and seam.
package posture
