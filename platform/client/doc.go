// Package client is the API's wire types and a typed client: what cmd/pgmill and programs
// of any team speak to a host with. The server answers with the same types, so there is
// one place for a name. It imports nothing of the module.
package client
