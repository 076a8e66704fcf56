package plan

import (
	"fmt"
	"time"
)

// An Item is a command that the engine of a user's system gives to the machine of a node at an instant. If the node is
// down at that instant, the command is not given.
type Item struct {
	At   time.Duration `yaml:"at"`
	Do   string        `yaml:"do"`
	Node Node          `yaml:"node"`
	// Span and Number are parameters; the system defines their meaning.
	Span   time.Duration `yaml:"span,omitempty"`
	Number uint32        `yaml:"number,omitempty"`
}

// itemsMax is the maximum number of items in a plan.
const itemsMax = 2000

// PD is the name of the system of plans that name none.
const PD = "pd"

// checkItems reports the errors in the items that do not depend on the system.
func (p *Plan) checkItems(c *checker) {
	if p.System == PD {
		c.addError("system is pd: leave the field out, because pd is the default")
	}
	if p.System == "" && len(p.Items) > 0 {
		c.addError("items are %d, but system is missing: name the system of the items", len(p.Items))
	}
	if len(p.Items) > itemsMax {
		c.addError("items are %d: give at most %d", len(p.Items), itemsMax)
		return
	}
	for i := range p.Items {
		x := &p.Items[i]
		at := func(field string) string { return fmt.Sprintf("items[%d].%s", i, field) }
		checkRange(c, at("at"), x.At, 0, spanMax)
		checkRange(c, at("span"), x.Span, 0, spanMax)
		if x.Do == "" {
			c.addError("%s is missing: name a command", at("do"))
		}
	}
}

// nodeLimit returns the maximum number of nodes that a plan may refer to, as far as the number is known without the
// system.
func (p *Plan) nodeLimit() int {
	if p.System == "" {
		return p.NodeCount()
	}
	return NodesMax
}

// MarshalYAML writes an item on a single line.
func (x Item) MarshalYAML() (any, error) {
	type plain Item
	return flowNode(plain(x))
}
