package kernel

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// Whatever opens and closes, in whatever order: a connection is its owner's while it is open, and nobody's before and
// afterwards.
func TestConnsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewConns(4)
		model := map[effects.Conn]Ref{}
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				conn := effects.Conn(rapid.IntRange(1, 9).Draw(t, "conn"))
				if _, open := model[conn]; open || len(model) == 4 {
					t.Skip("open, or full")
				}
				model[conn] = Ref{Owner: OwnerLink, Subject: table.Handle(rapid.IntRange(1, 3).Draw(t, "peer"))}
				c.Bind(conn, model[conn])
			},
			"unbind": func(t *rapid.T) {
				conn := effects.Conn(rapid.IntRange(1, 9).Draw(t, "conn"))
				if _, open := model[conn]; !open {
					t.Skip("closed")
				}
				delete(model, conn)
				c.Unbind(conn)
			},
			"": func(t *rapid.T) {
				for conn := range effects.Conn(10) {
					if got := c.Find(conn); got != model[conn] {
						t.Fatalf("connection %d is %+v's; want %+v", conn, got, model[conn])
					}
				}
				if c.Len() != len(model) {
					t.Fatalf("%d open; want %d", c.Len(), len(model))
				}
			},
		})
	})
}

// What only our own defect can cause is found at once.
func TestConnsMisused(t *testing.T) {
	for name, misuse := range map[string]func(*Conns){
		"opened twice": func(c *Conns) { c.Bind(1, Ref{}) },
		"closed twice": func(c *Conns) { c.Unbind(1); c.Unbind(1) },
		"one too many": func(c *Conns) { c.Bind(2, Ref{}) },
	} {
		t.Run(name, func(t *testing.T) {
			c := NewConns(1)
			c.Bind(1, Ref{})
			defer func() {
				if recover() == nil {
					t.Error("it went unnoticed")
				}
			}()
			misuse(&c)
		})
	}
}
