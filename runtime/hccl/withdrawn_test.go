package hccl

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// What an accept lists as taken back is not submitted on its life, nor, where there were others, what was or may have
// been given before it: neither what waits already, nor what the machine wants later.
func TestWithdrawnGrants(t *testing.T) {
	for _, c := range []struct {
		name string
		a    accept
		want map[effects.GrantID]bool // withdrawn
	}{
		{"listed", accept{revoked: []effects.GrantID{70, 90}}, map[effects.GrantID]bool{70: true, 90: true}},
		{"and others", accept{more: true}, map[effects.GrantID]bool{70: true, 79: true, 80: true}},
		{"both", accept{more: true, revoked: []effects.GrantID{90}}, map[effects.GrantID]bool{70: true, 79: true, 80: true, 90: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &recorder{}
			l := &link{hands: h, id: 5, rules: rules{window: 100, tries: 2, answer: 50, patience: 100, grace: 20}}
			grants := []effects.GrantID{70, 79, 80, 81, 90, 100}
			given := map[effects.GrantID]effects.Time{70: 0, 79: 1, 80: 1, 81: 2, 90: 2, 100: 3} // 0: nobody knows
			begin := func(first effects.Corr) {
				for i, grant := range grants {
					l.transfer(&transfer{corr: first + effects.Corr(i), grant: grant, since: given[grant], notAfter: 1000, batches: make([][]piece, 1)}, 1)
				}
			}
			l.ask(1)
			begin(1)
			c.a.life = 1
			l.accepted(c.a, 2)
			l.formed(1, effects.OK, 3)
			begin(101)
			submits := map[effects.Corr]bool{}
			for next := l.next(); next != nil; next = l.next() {
				submits[next.corr] = true
				l.submit(next, submitted, 4)
			}
			ends := map[effects.Corr]effects.Code{}
			for _, done := range h.done {
				ends[done.Corr] = done.Code
			}
			for i, grant := range grants {
				for _, corr := range []effects.Corr{1 + effects.Corr(i), 101 + effects.Corr(i)} {
					code, ended := ends[corr]
					if withdrawn := ended && code == effects.Withdrawn; withdrawn != c.want[grant] || submits[corr] == withdrawn {
						t.Errorf("transfer %d under grant %d: submitted %v, ended %v as %s", corr, grant, submits[corr], ended, code)
					}
				}
			}
		})
	}
}
