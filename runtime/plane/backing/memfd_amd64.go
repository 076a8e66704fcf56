package backing

// sysMemfdCreate is the number of memfd_create in Linux's table for amd64.
const sysMemfdCreate = 319
