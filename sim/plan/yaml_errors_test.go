package plan

import (
	"strings"
	"testing"
)

// The error of an invalid plan names the line, the field and the value, and what is allowed there.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\nwhether: fine\n":                         "line 2: whether is not a field there: the fields are bounds, defect,",
		"version: 1\njobs:\n- {at: 0s, requst: 3}\n":          "line 3: jobs.requst is neither a field nor a flow's flag",
		"version: one\n":                                      "line 1: version is one: give a whole number",
		"version: 1\ntopology: {senders: many}\n":             "line 2: topology.senders is many: give a whole number",
		"version: 1\ntopology: {leased: 3}\n":                 "line 2: topology.leased is 3: give true or false",
		"version: 1\ntimeouts: {put: fast}\n":                 "line 2: timeouts.put is fast: give a duration, such as 1.5s or 200ms",
		"version: 1\njobs:\n- {at: 0s, request: -3}\n":        "line 3: jobs.request is -3: give a whole number from 0 on",
		"version: 1\njobs: 3\n":                               "line 2: jobs is 3: give a list",
		"version: 1\ntopology: [1]\n":                         "line 2: topology has the wrong type: use its fields",
		"version: 1\nstrikes:\n- {fault: late store, nth: a}": "line 3: strikes.nth is a: give a whole number from 0 on",
		" \n": "the plan is empty: a plan begins with version: 1",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "yaml") ||
			strings.Contains(err.Error(), "plan.") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
