//go:build arm64 || riscv64 || loong64

package backing

// sysMemfdCreate is the number of memfd_create in Linux's generic table.
const sysMemfdCreate = 279
