package config

import (
	"strings"
)

// note says, if a key was given, that it was accepted and does not do here what it says. Who writes a key's
// default expects nothing of it, and is not told.
func (d *draft) note(name, remark string) {
	if s, given := d.found[name]; given && !d.hasProblem(s) && !d.isDefault(name, s) {
		d.noteAt(s, remark)
	}
}

func (d *draft) isDefault(name string, s setting) bool {
	k := d.find(name)
	given, isScalar := scalar(s.node)
	def := k.standard()
	if !isScalar || def == "" {
		return false
	}
	a, errA := parseFloat(given)
	b, errB := parseFloat(def)
	return strings.EqualFold(given, def) || errA == nil && errB == nil && a == b
}

// noteAt adds a note unless the setting has one already: the first is the nearest to the cause.
func (d *draft) noteAt(s setting, remark string) {
	n := s.problem(Note, remark)
	for _, other := range d.cfg.Notes {
		if other.File == n.File && other.Field == n.Field {
			return
		}
	}
	d.cfg.Notes = append(d.cfg.Notes, n)
}

// hasProblem reports whether something is wrong with the setting already.
func (d *draft) hasProblem(s setting) bool {
	for _, p := range d.problems {
		if p.File == s.file && p.Field == s.field {
			return true
		}
	}
	return false
}
