package trace

// A PageState is the name of a page state and its meaning.
type PageState struct{ Name, Meaning string }

// PageStates returns the states of pages, ordered from the least to the most protected. A page that is in several
// states at once is shown in the last of them.
func PageStates() []PageState {
	return []PageState{
		{"free", "unused"},
		{"ready", "holds a chunk that may be read"},
		{"reserved", "the sending engine fills it"},
		{"lent", "a transfer may read it, so its engine must not write it"},
		{"granted", "a peer may write it"},
		{"landing", "a store into it is in progress"},
		{"pinned", "the reading engine uses it"},
		{"quarantined", "its grant has ended, but a late store may still arrive, so it must not be used"},
	}
}
