// Package push is the exchange in which who has chunks writes them into the memory of who wants them.
//
// A rank may rely on this: a put has one outcome, by its deadline; its memory goes back once, when nothing reads it any
// more; and what its receiver granted is committed, given back, or left to the end of its lease, to that life of the
// receiver alone.
package push
