import type { ComponentChildren } from 'preact'

interface ButtonProps {
  readonly children: ComponentChildren
  readonly kind?: 'primary' | 'danger'
  readonly type?: 'button' | 'submit'
  readonly class?: string
  readonly title?: string
  /** For a button without text. */
  readonly label?: string
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
  return (
    <button
      type={type ?? 'button'}
      class={`button ${kind === undefined ? '' : `button-${kind}`} ${className}`}
      title={title}
      aria-label={label}
      aria-busy={isBusy}
      aria-expanded={expanded}
      aria-pressed={pressed}
      disabled={isBusy || isDisabled}
      onClick={onClick}
    >
      {children}
    </button>
  )
}
