/** A failure with a message of one line for the operator: cause and next step. */
export class SupervisorError extends Error {
  override readonly name = 'SupervisorError'
}
