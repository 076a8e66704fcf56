package world

// facets are what a node does for its engine. A machine may have several.
type facets uint8

const (
	FacetSends    facets = 1 << iota // chunks leave its pages
	FacetReceives                    // chunks come into its pages, and are kept for requests
	facetsEnd
)

// Sends says whether n has chunks that others ask for, or are sent.
func (n *Node) Sends() bool { return n.Facets&FacetSends != 0 }

// Receives says whether others send n chunks, or offer them.
func (n *Node) Receives() bool { return n.Facets&FacetReceives != 0 }

// String is what people call such a node.
func (f facets) String() string { return [facetsEnd]string{"none", "sender", "receiver", "both"}[f] }
