package world

// facets are the roles of a node. A machine may have several.
type facets uint8

const (
	FacetSends    facets = 1 << iota // chunks leave its pages
	FacetReceives                    // chunks come into its pages, and are kept for requests
	facetsEnd
)

// Sends reports whether peers request or receive chunks from n.
func (n *Node) Sends() bool { return n.Facets&FacetSends != 0 }

// Receives reports whether peers send chunks to n, or offer chunks to n.
func (n *Node) Receives() bool { return n.Facets&FacetReceives != 0 }

// String returns the name of the role.
func (f facets) String() string { return [facetsEnd]string{"none", "sender", "receiver", "both"}[f] }
