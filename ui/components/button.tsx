import type { ComponentChildren } from 'preact'

interface ButtonProps {
  readonly children: ComponentChildren
  readonly kind?: 'primary' | 'danger'
  readonly type?: 'button' | 'submit'
  readonly class?: string
  readonly title?: string
  /** For a button without text. */
  readonly label?: string
  /** Does nothing meanwhile, and keeps the focus. */
  readonly isBusy?: boolean
  readonly isDisabled?: boolean
  readonly expanded?: boolean
  readonly pressed?: boolean
  readonly onClick?: () => void
}

export function Button(props: ButtonProps) {
  const {
    children,
    class: className = '',
    expanded,
    isBusy,
    isDisabled,
    kind,
    label,
    onClick,
    pressed,
    title,
    type,
  } = props
  const onPress = (event: Event) => {
    // A busy button would submit its form, too.
    if (isBusy) event.preventDefault()
    else onClick?.()
  }
  return (
    <button
      type={type ?? 'button'}
      class={`button ${kind === undefined ? '' : `button-${kind}`} ${className}`}
      title={title}
      aria-label={label}
      aria-busy={isBusy}
      aria-expanded={expanded}
      aria-pressed={pressed}
      aria-disabled={isBusy || undefined}
      disabled={isDisabled}
      onClick={onPress}
    >
      {children}
    </button>
  )
}
