package demo

import (
	"fmt"
	"slices"
	"strings"
)

// A Mode is a way for chunks to go from prefill to decode.
type Mode string

// The modes.
const (
	Push Mode = "push" // the prefill writes them
	Pull Mode = "pull" // the prefill lends its pages, and the decodes read them as they are offered
)

// modes are all of them, in the order in which they are played.
var modes = []Mode{Push, Pull}

// ParseModes reads the name of one mode, or all.
func ParseModes(name string) ([]Mode, error) {
	if name == "all" {
		return modes, nil
	}
	if m := Mode(name); slices.Contains(modes, m) {
		return []Mode{m}, nil
	}
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return nil, fmt.Errorf("--mode is %q; use %s or all", name, strings.Join(names, ", "))
}

// offersStand is how long the demo's offers stand, in seconds: so long the pages of a decode that was killed over
// them stay lent.
const offersStand = 3

// prefill and decode are the lines that a mode adds to the configuration of each side.
func (m Mode) prefill(donePort uint16) string {
	if m == Push {
		return ""
	}
	return fmt.Sprintf("pd_pull_mode: true\npd_peer_host: %s\npd_pull_done_port: %d\npd_pull_pending_ttl: %d\n", host, donePort, offersStand)
}

func (m Mode) decode() string {
	if m == Push {
		return ""
	}
	return "pd_pull_mode: true\n"
}
