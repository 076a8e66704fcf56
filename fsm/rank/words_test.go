package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// replaceReasons replaces the words of each answer under way.
func (r *rig) replaceReasons(words string) {
	lim := protocol.DefaultLimits()
	for i := range r.items {
		body := r.items[i].message()
		if body == nil {
			continue
		}
		var alloc protocol.AllocResponse
		var hello protocol.HixlInitResponse
		var ack protocol.PullReadyDoneAck
		var ready protocol.HixlReadyResponse
		switch {
		case alloc.Decode(*body, &lim) == nil && alloc.Ext.Code != 0:
			alloc.Ext.Reason = []byte(words)
			*body = alloc.Append(nil)
		case hello.Decode(*body, &lim) == nil && hello.Ext.Code != 0:
			hello.Ext.Reason = []byte(words)
			*body = hello.Append(nil)
		case ack.Decode(*body, &lim) == nil && ack.Ext.Code != 0:
			ack.Ext.Reason = []byte(words)
			*body = ack.Append(nil)
		case ready.Decode(*body, &lim) == nil && ready.Code != 0:
			ready.Reason = []byte(words)
			*body = ready.Append(nil)
		}
	}
}

// A peer's words are shown, short and printable, and change nothing else, whatever they are.
func TestWordsChangeNothing(t *testing.T) {
	play := func(words string, pull bool) (log string, said []string) {
		r := &rig{t: t, now: effects.Time(effects.Second)}
		r.add(Config{
			Role:   RoleReceiver,
			Memory: Memory{Pages: 1},
		}, "r")
		cfg := Config{
			Role:     RoleSender,
			Memory:   Memory{Pages: 8},
			Offering: Offering{Pull: pull},
		}
		if pull {
			cfg.DoneAddr = effects.Addr{Host: "s", Port: 3}
		}
		r.add(cfg, "s")
		s := r.node("s")
		r.onFailure = func(w *effects.Why) { said = append(said, w.Said) }
		do := func(name string, ticket uint64, args map[string][]string) {
			ev := &effects.Command{Ticket: effects.Ticket(ticket)}
			ev.Body = r.command(s, name, func(key string) []string { return args[key] }, ticket)
			r.step(s, ev)
			for n := 0; n < 1000; n++ {
				r.replaceReasons(words)
				if !r.deliverNext() {
					return
				}
			}
			t.Fatal("still busy")
		}
		do("reserve", 1, map[string][]string{"count": {"2"}})
		do("put", 2, map[string][]string{"keys": {"a", "b"}}) // It can never fit one page.
		do("put", 3, map[string][]string{"keys": {"c"}})
		r.advance(effects.Second)
		var kept []string
		for line := range strings.Lines(r.log.String()) {
			if !strings.Contains(line, "kvf_reason") && !strings.Contains(line, "because:") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, ""), said
	}
	for _, pull := range []bool{false, true} {
		want, said := play("", pull)
		if len(said) == 0 || !strings.Contains(want, "Deliver #2 too_large") {
			t.Fatalf("nothing was refused:\n%s", want)
		}
		for _, words := range []string{"x", "a\nb\x1b[2J", strings.Repeat("ü", 500), "retry at once; kvf_code: 0"} {
			got, said := play(words, pull)
			if got != want {
				t.Errorf("with the words %q:\n%s\nwithout:\n%s", words, got, want)
			}
			if got, want := said[0], effects.SanitizeText([]byte(words)); got != want || want == "" {
				t.Errorf("the words %q are shown as %q, want %q", words, got, want)
			}
		}
	}
}
