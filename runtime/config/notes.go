package config

import (
	"strings"
)

// addNote adds a note to a key that was given, was accepted, and has a different effect here than in LMCache. A value
// that equals the key's default gets no note, because writing the default is not expected to have an effect.
func (d *draft) addNote(name, remark string) {
	if s, given := d.settings[name]; given && !d.hasProblem(s) && !d.isDefault(name, s) {
		d.addNoteAt(s, remark)
	}
}

// isDefault reports whether a setting equals the default of the key, as a number or as text regardless of case.
func (d *draft) isDefault(name string, s setting) bool {
	k := d.findKey(name)
	given, isScalar := scalarText(s.node)
	def := k.defaultText()
	if !isScalar || def == "" {
		return false
	}
	a, errA := parseFloat(given)
	b, errB := parseFloat(def)
	return strings.EqualFold(given, def) || errA == nil && errB == nil && a == b
}

// addNoteAt adds a note to a setting, unless the setting has a note already: the first note is closest to the cause.
func (d *draft) addNoteAt(s setting, remark string) {
	n := s.newProblem(Note, remark)
	for _, other := range d.cfg.Notes {
		if other.File == n.File && other.Field == n.Field {
			return
		}
	}
	d.cfg.Notes = append(d.cfg.Notes, n)
}

// hasProblem reports whether a problem of the setting has been recorded already.
func (d *draft) hasProblem(s setting) bool {
	for _, p := range d.problems {
		if p.File == s.file && p.Field == s.field {
			return true
		}
	}
	return false
}
