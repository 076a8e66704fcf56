package trace

// A PageState is a state of a page and what it means.
type PageState struct{ Name, Meaning string }

// PageStates are the states of pages from the most free to the most guarded. A page that is in several
// at once shows the last of them.
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
