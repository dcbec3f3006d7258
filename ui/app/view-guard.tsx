import { Component, type ComponentChildren } from 'preact'
import { Failure } from '../components/states.tsx'

interface ViewGuardProps {
  readonly children: ComponentChildren
}

interface GuardState {
  readonly error: Error | undefined
}

/** Shows a failure in place of a view that cannot show its data, such as that of a faulty host. The rest of the page stays. */
export class ViewGuard extends Component<ViewGuardProps, GuardState> {
  override state: GuardState = { error: undefined }

  override componentDidCatch(error: unknown): void {
    this.setState({ error: error instanceof Error ? error : new Error(String(error)) })
  }

  override render({ children }: ViewGuardProps, { error }: GuardState) {
    if (!error) return children
    return (
      <Failure
        error={new Error(`The view failed: ${error.message}`)}
        hint="The server or a host sent data that the view cannot show."
        retry={() => this.setState({ error: undefined })}
      />
    )
  }
}
