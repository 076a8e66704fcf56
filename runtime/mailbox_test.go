package runtime

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

func TestMailboxKeepsOrder(t *testing.T) {
	m := newMailbox(8, 1<<10)
	for c := range effects.Corr(5) {
		m.Post(&effects.Opened{Corr: c})
	}
	for want, ev := range m.takeEvents() {
		if got := ev.(*effects.Opened).Corr; got != effects.Corr(want) {
			t.Errorf("event %d has corr %d", want, got)
		}
	}
	if got := m.takeEvents(); len(got) != 0 {
		t.Errorf("an emptied mailbox gave %d events", len(got))
	}
}

// At the quota the transport waits, and completions go past it: "completions block nobody".
func TestMailboxPushesBackOnlyWhatPeersSend(t *testing.T) {
	for _, c := range []struct {
		name           string
		messages, size int
	}{{"messages", 2, 1 << 20}, {"bytes", 100, 10}} {
		t.Run(c.name, func(t *testing.T) {
			m := newMailbox(c.messages, c.size)
			m.Post(&effects.Received{Body: make([]byte, 5)})
			m.Post(&effects.Received{Body: make([]byte, 5)})
			posted := make(chan struct{})
			go func() {
				m.Post(&effects.Received{Body: make([]byte, 5)})
				close(posted)
			}()
			m.Post(&effects.Opened{}) // Would block for ever if it counted.
			batch := m.takeEvents()
			<-posted // The room that take made lets it in.
			if got := len(batch) + len(m.takeEvents()); got != 4 {
				t.Errorf("%d events came through, want 4", got)
			}
		})
	}
}

func TestMailboxTakesOneMessageOfAnySize(t *testing.T) {
	m := newMailbox(4, 10)
	m.Post(&effects.Received{Body: make([]byte, 1000)})
	if got := len(m.takeEvents()); got != 1 {
		t.Errorf("%d events, want 1", got)
	}
}

func TestMailboxCloseFreesWhoWaits(t *testing.T) {
	m := newMailbox(1, 10)
	m.Post(&effects.Received{})
	posted := make(chan struct{})
	go func() {
		m.Post(&effects.Received{})
		close(posted)
	}()
	m.close()
	<-posted
	m.Post(&effects.Tick{})
	if got := len(m.takeEvents()); got != 0 {
		t.Errorf("a closed mailbox kept %d events", got)
	}
}

func BenchmarkMailbox(b *testing.B) {
	m := newMailbox(8, 1<<10)
	ev := &effects.Opened{}
	b.ReportAllocs()
	for b.Loop() {
		m.Post(ev)
		<-m.wake
		m.takeEvents()
	}
}
