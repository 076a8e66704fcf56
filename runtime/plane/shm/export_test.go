package shm

// Ordered says whether shm may be opened on a kind of processor.
var Ordered = ordered
