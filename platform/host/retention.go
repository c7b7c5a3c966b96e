package host

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
)

// cleanupKeys are what a profile's retention and the metrics call the clean-ups of a
// registry, each once.
func cleanupKeys(reg *platform.Registry) []string {
	var keys []string
	for _, c := range platform.Of[platform.Cleanup](reg) {
		keys = append(keys, c.Key())
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

var daysForm = regexp.MustCompile(`^([0-9]{1,5})d(.*)$`)

// parseKeep reads how long rows are kept: days and a duration, such as 90d, 36h or
// 1d12h.
func parseKeep(text string) (time.Duration, error) {
	rest, days := text, 0
	if m := daysForm.FindStringSubmatch(text); m != nil {
		days, _ = strconv.Atoi(m[1])
		rest = m[2]
	}
	keep := time.Duration(days) * 24 * time.Hour
	if rest != "" || days == 0 {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("write how long, such as 7d, 36h or 1d12h, not %q", text)
		}
		keep += d
	}
	if keep < time.Minute {
		return 0, fmt.Errorf("write at least a minute, such as 7d or 36h, not %q", text)
	}
	return keep, nil
}

// retention reads a profile's manifest and answers all its faults: a time that is none,
// or less than a clean-up bears, and a key that is no clean-up's of this build.
func (p Profile) retention(reg *platform.Registry) (keep map[string]time.Duration, faults []error) {
	keep = map[string]time.Duration{}
	least := map[string]time.Duration{}
	for _, c := range append(cleanup.Builtin(), platform.Of[platform.Cleanup](reg)...) { // profiles that ship name the first
		least[c.Key()] = max(least[c.Key()], c.Rule.AtLeast)
	}
	for _, key := range sorted(p.Retention) {
		d, err := parseKeep(p.Retention[key])
		switch {
		case err != nil:
			faults = append(faults, faultf("retention of profile %s: %s: %v", p.Name, key, err))
		case !slices.Contains(sorted(least), key):
			faults = append(faults, faultf("retention of profile %s: no clean-up of this build is called %q%s There are: %s", p.Name, key, didYouMean(key, sorted(least)), strings.Join(sorted(least), ", ")))
		case d < least[key]:
			faults = append(faults, faultf("retention of profile %s: %s: %s is less than the %v that rows are needed for", p.Name, key, p.Retention[key], least[key]))
		default:
			keep[key] = d
		}
	}
	return keep, faults
}
