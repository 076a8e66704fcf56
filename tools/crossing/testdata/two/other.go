package two

// Use uses what the other file has.
func Use() int {
	t := thing[int]{size: shared}
	t.grow()
	local := t.size + shared
	return local
}
