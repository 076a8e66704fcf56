package agent

import (
	"context"
	"testing"
)

// The error for a wrong line names the field and a remedy, and a misspelt field is an error.
func TestLinesThatAreWrong(t *testing.T) {
	s := &server{}
	for line, want := range map[string]Response{
		`{"id":1`: {Code: "malformed", Error: "not a request: unexpected EOF; write one JSON object a line"},
		`{"id":1,"op":"put","reqest":"r"}`: {ID: 1, Code: "malformed",
			Error: `not a request: there is no field "reqest"; docs/first-hour.md shows requests`},
		`{"op":"put","keys":"k","id":7}`: {ID: 7, Code: "malformed",
			Error: "not a request: field keys is a text, want a list; docs/first-hour.md shows requests"},
		`{"id":1,"op":"push"}`: {ID: 1, Code: "invalid",
			Error: `op is "push"; use put, prefill, recall, get, fetch, store, bring, lookup, finish, register, cancel, ` +
				"abort, abandon, stats or drain"},
		`{"id":1,"op":"put"}`: {ID: 1, Code: "invalid",
			Error: "put: peer is missing; give host, init_port and alloc_port"},
		`{"id":1,"op":"put","peer":{"host":"h"}}`: {ID: 1, Code: "invalid",
			Error: "put: keys is empty; name at least one chunk"},
	} {
		if got := s.handleLine(context.Background(), []byte(line)); got != want {
			t.Errorf("%s is answered\n%+v\nwant\n%+v", line, got, want)
		}
	}
}
