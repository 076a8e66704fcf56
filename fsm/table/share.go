package table

// Share bounds how many places of a table each class has: no more than it leaves free. So a class that takes places
// without end leaves as many free as it has, and the next class can take half of those. Example: in a table of 12
// places the first class can take 6, the second 3, the third 2, and the fourth 1.
type Share struct {
	perClass []int // by class
	total    int   // the sum of perClass
	limit    int   // the number of places of the table
}

// Recycle returns the shares of a table of limit places, none of which is taken, in the memory of s. The caller must
// not use s afterwards.
func (s *Share) Recycle(limit, classes int) Share {
	return Share{perClass: RecycleSlice(s.perClass, classes), limit: limit}
}

// RecycleSlice returns n zero values, in the memory of s if s is large enough. The caller must not use s afterwards.
func RecycleSlice[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// HasRoom reports whether class may take one more place.
func (s *Share) HasRoom(class int) bool { return s.perClass[class] < s.limit-s.total }

// HasRoomAfter reports whether class may take one more place after class giver has given back a place. A class below 0
// has no places and gives none back.
func (s *Share) HasRoomAfter(class, giver int) bool {
	taken, total := 0, s.total
	if class >= 0 {
		taken = s.perClass[class]
	}
	if giver >= 0 {
		total--
	}
	if giver >= 0 && giver == class {
		taken--
	}
	return taken < s.limit-total
}

// FreePlaces returns how many more places class may take if no other class takes or gives back places.
func (s *Share) FreePlaces(class int) int { return max(0, s.limit-s.total-s.perClass[class]+1) / 2 }

// CountOf returns the number of places of class.
func (s *Share) CountOf(class int) int { return s.perClass[class] }

// Total returns the number of places of all classes.
func (s *Share) Total() int { return s.total }

// Acquire counts one more place for class.
func (s *Share) Acquire(class int) { s.Add(class, 1) }

// Release counts one place less for class.
func (s *Share) Release(class int) { s.Add(class, -1) }

// Add counts n more places for class, or fewer if n is negative.
func (s *Share) Add(class, n int) {
	s.perClass[class] += n
	s.total += n
}
