package sim

// facets are what a node does for its engine. A machine may have several.
type facets uint8

const (
	facetSends    facets = 1 << iota // chunks leave its pages
	facetReceives                    // chunks come into its pages, and are kept for requests
	facetsEnd
)

// sends says whether n has chunks that others ask for, or are sent.
func (n *node) sends() bool { return n.facets&facetSends != 0 }

// receives says whether others send n chunks, or offer them.
func (n *node) receives() bool { return n.facets&facetReceives != 0 }

// String is what people call such a node.
func (f facets) String() string { return [facetsEnd]string{"none", "sender", "receiver", "both"}[f] }
