package runtime

import "testing"

// OpenCommand returns an open command of the node, which the machine knows nothing of, so no drain ends it.
func (n *Node) OpenCommand(t *testing.T) *Ticket {
	ticket, err := n.tickets.beginTicket("test", classWork)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}
