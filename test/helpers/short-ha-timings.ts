/**
 * Import this first: shortens the lease of the active server in this process and its children. On a busy machine a process may not
 * run for a second, and a lease that ends meanwhile changes the active server in the middle of a test.
 */
process.env['OUTPOST_TIMINGS'] ??= JSON.stringify({
  haLeaseMs: 2000,
  haLeaseMarginMs: 200,
  haRenewMs: 200,
  haPollMs: 50,
  haReportMs: 200,
  haFailingMs: 500,
  haStaleMs: 1500,
})
