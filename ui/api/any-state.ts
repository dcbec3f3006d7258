/** The query of `sys/health` that makes each state of the server a response with the status 200. */
export const ANY_STATE = {
  sealedcode: 200,
  uninitcode: 200,
  drsecondarycode: 200,
  standbycode: 200,
  haunhealthycode: 200,
}
