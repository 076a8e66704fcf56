package plan

import (
	"fmt"
	"time"
)

// An Item is one thing that an engine of a user's system wants at an instant: a command to the machine of a node. If
// that is down then, nobody gives it.
type Item struct {
	At   time.Duration `yaml:"at"`
	Do   string        `yaml:"do"`
	Node Node          `yaml:"node"`
	// What they mean the system says.
	Span   time.Duration `yaml:"span,omitempty"`
	Number uint32        `yaml:"number,omitempty"`
}

// itemsMax bounds a plan's items.
const itemsMax = 2000

// PD is the system of plans that name none.
const PD = "pd"

// checkItems says what is wrong with items, whatever the system.
func (p *Plan) checkItems(c *checker) {
	if p.System == PD {
		c.wrong("system is pd: leave it out, it is what a plan without one is for")
	}
	if p.System == "" && len(p.Items) > 0 {
		c.wrong("items are %d, and system is left out: name the system that they are for", len(p.Items))
	}
	if len(p.Items) > itemsMax {
		c.wrong("items are %d: give at most %d", len(p.Items), itemsMax)
		return
	}
	for i := range p.Items {
		x := &p.Items[i]
		at := func(field string) string { return fmt.Sprintf("items[%d].%s", i, field) }
		within(c, at("at"), x.At, 0, spanMax)
		within(c, at("span"), x.Span, 0, spanMax)
		if x.Do == "" {
			c.wrong("%s is left out: say what is to be done", at("do"))
		}
	}
}

// mostNodes is how many nodes a plan may speak of, before its system is there to ask.
func (p *Plan) mostNodes() int {
	if p.System == "" {
		return p.NodeCount()
	}
	return NodesMax
}

// MarshalYAML keeps an item on one line.
func (x Item) MarshalYAML() (any, error) {
	type plain Item
	return oneLine(plain(x))
}
