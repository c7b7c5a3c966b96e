// Command pgmill is the client of the HTTP API, for people (tables) and programs (-o
// json): jobs, dead letters, outside workers and the configuration of topics. PGMILL_URL
// and PGMILL_API_KEY say where and as whom. Exit codes go by the class of what went wrong
// (exit.go).
package main
