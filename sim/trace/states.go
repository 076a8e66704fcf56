package trace

// A PageState is the name of a page state and its meaning.
type PageState struct{ Name, Meaning string }

// PageStates returns the states of pages, ordered from the least to the most protected. A page that is in several
// states at once is shown in the last of these states.
func PageStates() []PageState {
	return []PageState{
		{"free", "nobody has it"},
		{"ready", "holds a chunk that may be read"},
		{"reserved", "the sending engine has it and fills it"},
		{"lent", "a transfer may read it: its engine must not touch it"},
		{"granted", "a peer may write it"},
		{"landing", "a store is under way"},
		{"pinned", "the reading engine has it"},
		{"quarantined", "its grant ended, but a store may still land: nobody may have it"},
	}
}
