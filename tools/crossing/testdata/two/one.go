// Package two is to be cut in two.
package two

type thing[T any] struct{ size, own T }

func (t *thing[T]) grow() { t.own = t.size }

func alone() int { return 1 }

var shared = alone()
