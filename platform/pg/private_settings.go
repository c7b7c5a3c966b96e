package pg

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// settings are the server's, spec's last.
func settings(port int, spec keeperSpec) map[string]string {
	s := map[string]string{
		"port":                      strconv.Itoa(port),
		"listen_addresses":          "127.0.0.1",
		"unix_socket_directories":   "",
		"max_connections":           "200",
		"shared_buffers":            "256MB",
		"max_prepared_transactions": "0",
		"log_destination":           "stderr",
		"logging_collector":         "off",
		"search_path":               "public", // not "$user": the user is named like our schema
		"shared_preload_libraries":  strings.Join(spec.Preload, ","),
	}
	if spec.Fast {
		s["fsync"], s["synchronous_commit"], s["full_page_writes"] = "off", "off", "off"
		s["max_connections"] = "400"
	}
	maps.Copy(s, spec.Settings)
	return s
}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$`)

// checkSettings refuses what is not a name of a setting, and what is ours.
func checkSettings(settings map[string]string) error {
	ours := []string{"port", "listen_addresses", "unix_socket_directories", "data_directory", "log_destination", "logging_collector"}
	for name := range settings {
		if !settingName.MatchString(name) || slices.Contains(ours, name) {
			return fmt.Errorf("private Postgres: setting %q cannot be set", name)
		}
	}
	return nil
}

// serverEnv is the little that the keeper and the server need to know.
func serverEnv() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
