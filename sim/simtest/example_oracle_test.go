package simtest_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/simtest"
)

// getBound is how long a get may take.
var getBound = 10 * effects.Second

// pendingGets is what the oracle remembers of a run: when engines gave the gets that have not ended yet.
type pendingGets struct {
	givenAt map[effects.Ticket]effects.Time
}

// promptGets judges how long an engine waits for the chunks of a request.
var promptGets = oracle.New("prompt gets", "a get ends within ten seconds", func(l *oracle.Subscriptions[pendingGets]) {
	oracle.On(l, func(g *pendingGets, c *oracle.Call, e *effects.Command) {
		if _, ok := e.Body.(*engine.Get); !ok {
			return
		}
		if g.givenAt == nil {
			g.givenAt = map[effects.Ticket]effects.Time{}
		}
		g.givenAt[e.Ticket] = c.Now()
	})
	oracle.On(l, func(g *pendingGets, c *oracle.Call, e *effects.Deliver) {
		since, ok := g.givenAt[e.Ticket]
		if !ok {
			return
		}
		delete(g.givenAt, e.Ticket)
		if took := c.Now().Sub(since) - c.FrozenTime(); took > getBound {
			c.Fail("node %d ends ticket %d %v after it was given", c.Node(), oracle.Ticket(e.Ticket), time.Duration(took))
		}
	})
})

func TestPromptGets(t *testing.T) {
	simtest.Check(t, simtest.Case{Seeds: 50, Profile: "full", Oracles: []oracle.Oracle{promptGets}})
}

// TestFirstOracle: the document that teaches to write an oracle shows the one above, and that fails as the document
// says.
func TestFirstOracle(t *testing.T) {
	text, err := os.ReadFile("../../docs/first-oracle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(text), "```go\n")
	shown, _, ended := strings.Cut(shown, "```\n")
	source, err := os.ReadFile("example_oracle_test.go")
	if err != nil || !found || !ended || !strings.Contains(string(source), shown) {
		t.Errorf("docs/first-oracle.md shows other lines than example_oracle_test.go has: %v", err)
	}
	t.Chdir(t.TempDir())
	defer func(was effects.Duration) { getBound = was }(getBound)
	getBound = 0
	told, failed := runCheck(t, "TestPromptGets", simtest.Case{Seeds: 50, Profile: "full",
		Oracles: []oracle.Oracle{promptGets}})
	for _, line := range []string{"prompt gets broken: node ", "promised: a get ends within ten seconds"} {
		if !failed || !strings.Contains(told, line) || !strings.Contains(string(text), line) {
			t.Errorf("no line %q, in the document or in:\n%s", line, told)
		}
	}
}
