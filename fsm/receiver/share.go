package receiver

// A share bounds what each class has of a table of most places: no more than it leaves. So one that takes without end
// always leaves as much for the next.
type share struct {
	of    []uint32 // by class
	total uint32
	most  uint32
}

func newShare(most uint32, classes int) share { return share{of: make([]uint32, classes), most: most} }

// may says whether class may have one more.
func (s *share) may(class int) bool { return s.of[class] < s.most-s.total }

func (s *share) take(class int) {
	s.of[class]++
	s.total++
}

func (s *share) give(class int) {
	s.of[class]--
	s.total--
}
